"""Non-maximum suppression on boxes whose overlaps are worked out by hand."""

import torch
from op_run import run

# Squares of width 2: boxes 0 and 1 share 1.5 of 2 widths (IoU 3 / 5), box 2 touches neither, box 3 is box 0 again.
BOXES = torch.tensor([[[0.0, 0, 2, 2], [0.5, 0, 2, 2], [9, 9, 2, 2], [0, 0, 2, 2]]])
SCORES = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.3, 0.1], [0.7, 0.0]]])


def nms(**operands):
    given = {"boxes": BOXES, "scores": SCORES, "iou_threshold": 0.5, "score_threshold": 0.0, "max_boxes": 4}
    return run("non_maximum_suppression", "CoreML5", **{**given, **operands})


def test_boxes_that_overlap_a_better_one_go():
    boxes, scores, indices, count = nms()
    assert indices.tolist() == [[0, 2, -1, -1]] and count.tolist() == [2]
    assert boxes.tolist() == [[[0, 0, 2, 2], [9, 9, 2, 2], [0, 0, 0, 0], [0, 0, 0, 0]]]
    assert torch.equal(scores[0, :2], SCORES[0, [0, 2]]) and scores[0, 2:].tolist() == [[0, 0], [0, 0]]


def test_thresholds_limits_and_classes():
    assert nms(iou_threshold=0.61)[2].tolist() == [[0, 1, 2, -1]]
    assert nms(score_threshold=0.5)[2].tolist() == [[0, -1, -1, -1]]
    assert nms(max_boxes=1)[2].tolist() == [[0]]
    assert nms(per_class_suppression=True)[2].tolist() == [[0, 1, 2, -1]]  # box 1 is the only one of its class


def test_the_best_box_is_kept_below_the_threshold_too():
    _, _, indices, count = nms(score_threshold=5.0, max_boxes=2)
    assert indices.tolist() == [[0, -1]] and count.tolist() == [1]


def test_boxes_without_area_overlap_nothing():
    boxes = torch.tensor([[[1.0, 1, 0, 0], [1, 1, 0, 0]]])
    assert nms(boxes=boxes, scores=torch.tensor([[[0.5], [0.4]]]), max_boxes=2)[2].tolist() == [[0, 1]]


def test_from_ios17_on_the_boxes_come_last():
    boxes, scores, indices = run(
        "non_maximum_suppression", boxes=BOXES.mT, scores=SCORES.mT, iou_threshold=0.5, max_boxes=3
    )
    assert indices.tolist() == [[0, 2, -1]]
    assert (boxes.shape, scores.shape) == ((1, 4, 3), (1, 2, 3)) and boxes[0, :, 1].tolist() == [9, 9, 2, 2]
