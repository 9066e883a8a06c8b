"""The judge: sessions, inputs, agreement, latency, memory.

It knows nothing of what is judged: no module here imports the optimizer.
"""
