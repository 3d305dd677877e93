"""Verifies finished programs against the model that they were made from: verdict, first wrong op, cost of float16."""
