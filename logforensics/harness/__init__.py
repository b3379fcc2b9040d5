"""The reproduction harness: real distributed runs, real faults, real logs, known truth.

A :class:`~logforensics.harness.plan.Plan` says what to run and what to break; the training script breaks it
for real on one rank; what comes out is a fixture whose truth was known before the run started. Nothing in the
analysis imports this package, and importing it does not import torch: only the processes that it starts do.
"""
