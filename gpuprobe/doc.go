// Package gpuprobe finds out which GPUs a host has and whether they are free.
//
// Probe runs one POSIX shell script on the host through a Runner and parses
// its output:
//
//	report, err := gpuprobe.Probe(ctx, client, gpuprobe.Options{})
//	if err != nil {
//		return fmt.Errorf("host %s: %w", name, err)
//	}
//	devices, err := report.Check([]string{"0", "GPU-02ba5a4d"})
//	if err != nil {
//		return fmt.Errorf("host %s: %w", name, err)
//	}
//
// The script runs the CSV queries of nvidia-smi, and nvidia-smi -q for the
// CUDA version. If nvidia-smi is missing or fails, it reads
// /proc/driver/nvidia. On a host without NVIDIA GPUs it runs AMD's amd-smi or
// rocm-smi, which print JSON. Each call of a tool may take a minute. A call
// that hangs in the kernel and cannot be killed does not delay the probe. The
// report distinguishes a host without a GPU, a tool that fails and a tool that
// hangs: see [Tool].
//
// # When a GPU is busy
//
// A GPU is busy if at least one of these conditions holds:
//
//   - A compute process runs on the GPU or on one of its MIG devices.
//   - More than BusyMemoryMiB of its memory are in use. This counts even without a
//     visible process, because nvidia-smi does not see other pid namespaces.
//   - Its utilisation is at least BusyUtilizationPercent, and its memory use is
//     more than idleMemoryMiB or unknown. Utilisation alone does not count: without
//     persistence mode the query itself wakes the GPU, which then reports up to 100 %.
//
// A MIG device is busy if a compute process is known to run on it. Some
// drivers report only the GPU of a process, not its MIG device: see
// [GPU.Unplaced].
//
// # What it does not do
//
// The package does not use ssh and does not assign GPUs to tasks. It changes
// nothing on the host: it writes no file, and does not reset, configure or
// reserve a GPU.
package gpuprobe
