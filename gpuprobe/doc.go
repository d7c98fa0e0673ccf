// Package gpuprobe asks one host which accelerators it has and whether they
// are free.
//
// Probe sends one POSIX shell script over a Runner and reads what it prints:
//
//	report, err := gpuprobe.Probe(ctx, client)
//	if err != nil {
//		return fmt.Errorf("host %s: %w", name, err)
//	}
//	if err := report.Check([]int{0, 1}); err != nil {
//		return fmt.Errorf("host %s: %w", name, err)
//	}
//
// The script reads nvidia-smi's CSV queries and falls back to
// /proc/driver/nvidia. Each call of nvidia-smi may take ten seconds; a tool
// that is stuck in the kernel and cannot be killed does not hold the probe up.
// A report tells apart a host without a GPU, a tool that is broken and a tool
// that hangs: see Tool.
//
// # When a GPU is busy
//
// A GPU is busy if at least one of these holds:
//
//   - a compute process is on it, or on one of its MIG devices;
//   - more than BusyMemoryMiB of its memory are in use, whoever uses them
//     (processes of other pid namespaces are invisible to nvidia-smi);
//   - it is utilised by at least BusyUtilizationPercent and more than
//     idleMemoryMiB are in use, or the use is unknown. Utilisation alone does
//     not count: without persistence mode the query itself wakes the GPU and
//     reports up to 100 % for an idle one.
//
// # What it does not do
//
// It knows no ssh and no placement, changes nothing on the host, writes no
// file there, and does not reset, configure or reserve a GPU.
package gpuprobe
