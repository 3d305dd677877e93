"""Non-maximum suppression."""

from __future__ import annotations

import torch
from torch import Tensor

from ..memory import require_elements


def non_maximum_suppression(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    score_threshold: float,
    max_boxes: int,
    per_class_suppression: bool = False,
) -> list[Tensor]:
    """Boxes [n, B, 4] (centre and size, x first) by falling score, without those that overlap an earlier one"""
    require_elements([boxes.shape[0], max_boxes, boxes.shape[2] + scores.shape[2]], "non_maximum_suppression")
    chosen = [
        _kept(box, score, iou_threshold, score_threshold, per_class_suppression)[:max_boxes]
        for box, score in zip(boxes, scores, strict=True)
    ]
    picked_boxes = torch.stack([_filled(box[kept], max_boxes, 0) for box, kept in zip(boxes, chosen, strict=True)])
    picked_scores = torch.stack([_filled(one[kept], max_boxes, 0) for one, kept in zip(scores, chosen, strict=True)])
    indices = torch.stack([_filled(kept, max_boxes, -1) for kept in chosen])
    return [picked_boxes, picked_scores, indices, torch.tensor([len(kept) for kept in chosen], dtype=torch.int32)]


def non_maximum_suppression_ios17(
    boxes: Tensor, scores: Tensor, iou_threshold: float, max_boxes: int, per_class_suppression: bool = False
) -> list[Tensor]:
    """As before with the boxes last, [n, 4, B], no score threshold, and without the counts"""
    found = non_maximum_suppression(
        boxes.transpose(1, 2), scores.transpose(1, 2), iou_threshold, float("-inf"), max_boxes, per_class_suppression
    )
    return [found[0].transpose(1, 2), found[1].transpose(1, 2), found[2]]


def _kept(boxes: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float, per_class: bool) -> Tensor:
    best, classes = scores.max(-1)
    order = torch.argsort(best, descending=True, stable=True)
    kept: list[int] = []
    for index in order.tolist():
        if kept and best[index] < score_threshold:  # the best box is always kept, as Apple's own reference does
            break
        rivals = [one for one in kept if not per_class or classes[one] == classes[index]]
        if not rivals or bool((_overlap(boxes[index], boxes[rivals]) <= iou_threshold).all()):
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)


def _overlap(box: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of one box with others."""
    low = torch.maximum(box[:2] - box[2:] / 2, others[:, :2] - others[:, 2:] / 2)
    high = torch.minimum(box[:2] + box[2:] / 2, others[:, :2] + others[:, 2:] / 2)
    common = (high - low).clamp(min=0).prod(-1)
    union = box[2:].prod() + others[:, 2:].prod(-1) - common
    return torch.nan_to_num(common / union, nan=0.0)  # two boxes without area


def _filled(values: Tensor, count: int, fill: int) -> Tensor:
    missing = values.new_full((count - values.shape[0], *values.shape[1:]), fill)
    return torch.cat([values, missing])
