// Package gpuprobe finds out which GPUs one host has and whether they are free.
//
// Probe runs one POSIX shell script through a Runner and reads its output:
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
// The script runs nvidia-smi's CSV queries, and its log for the CUDA version. It
// falls back to /proc/driver/nvidia. On a host without GPUs of NVIDIA's it asks AMD's amd-smi
// or rocm-smi for JSON. Each call of a tool may take a minute.
// A call that is stuck in the kernel and cannot be killed does not delay the
// probe. A report distinguishes a host without a GPU, a broken tool and a tool
// that hangs: see [Tool].
//
// # When a GPU is busy
//
// A GPU is busy if at least one of these holds:
//
//   - a compute process runs on it, or on one of its MIG devices;
//   - more than BusyMemoryMiB of its memory are in use, even if no process is
//     visible (nvidia-smi does not see processes of other pid namespaces);
//   - its utilisation is at least BusyUtilizationPercent, and its memory use is
//     more than idleMemoryMiB or unknown. Utilisation alone does not count:
//     without persistence mode the query itself wakes the GPU, which then
//     reports up to 100 %.
//
// A MIG device is busy if a compute process is known to run on it. Some drivers list
// a process with its GPU only: see [GPU.Unplaced].
//
// # What it does not do
//
// The package knows neither ssh nor placement. It changes nothing on the host,
// writes no file there, and does not reset, configure or reserve a GPU.
package gpuprobe
