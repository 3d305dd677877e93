"""Where each op runs, and why: verdict per node, placement of the graph, the ExecuTorch partitioner."""
