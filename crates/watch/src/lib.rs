//! Reads GPUs through NVML: samples, history, alerts.
