package metrics

import "strconv"

// Names of the metrics about a host's load. The host's agent stores them in a
// separate History. The names of GPU metrics end in the index of the GPU, see
// OfGPU.
const (
	CPUs       = "cpus"        // number of processors of the host
	CPU        = "cpu"         // number of busy processors, such as 1.5
	Memory     = "memory"      // bytes of memory that are not available to programs
	Received   = "received"    // bytes per second received on all network interfaces except loopback
	Sent       = "sent"        // bytes per second sent on all network interfaces except loopback
	GPUPercent = "gpu_percent" // percent of the time in which a kernel was running on the GPU
	GPUMemory  = "gpu_memory"  // bytes of GPU memory in use
)

// OfGPU returns the name of a metric for the GPU with the given index, such as
// gpu_percent_0.
func OfGPU(name string, index int) string { return name + "_" + strconv.Itoa(index) }

// Checkpoint is the metric with which plx's trainer reports a completed
// checkpoint. Its value is the number of training steps in the checkpoint.
const Checkpoint = "checkpoint"
