"""Device profiles: how fast a device is, and where each number comes from."""
