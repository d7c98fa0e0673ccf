package metrics

import "strconv"

// The names under which the use of a host is kept, in a History of its own. Those of a GPU end in its index, see
// OfGPU.
const (
	CPUs       = "cpus"        // processors that the host has
	CPU        = "cpu"         // processors that are busy, such as 1.5
	Memory     = "memory"      // bytes that are not available to programs
	Received   = "received"    // bytes a second through all interfaces but the loopback
	Sent       = "sent"        // bytes a second
	GPUPercent = "gpu_percent" // percent of the time in which a kernel ran
	GPUMemory  = "gpu_memory"  // bytes
)

// OfGPU returns the name of a value of the GPU with an index, such as gpu_percent_0.
func OfGPU(name string, index int) string { return name + "_" + strconv.Itoa(index) }

// Checkpoint is the name under which plx's trainer reports checkpoints: each value is the number of
// steps in a checkpoint that has just been completed.
const Checkpoint = "checkpoint"
