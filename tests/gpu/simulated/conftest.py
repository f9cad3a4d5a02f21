from gpu.simulated import scheduler

scheduler.install()
