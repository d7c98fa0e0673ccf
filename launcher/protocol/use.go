package protocol

import "time"

// HostUse is the usage of a host's processors, memory, network and GPUs.
type HostUse struct {
	CPUs        int           `json:"cpus"`
	Load        float64       `json:"load"`        // load average of the last minute, as in /proc/loadavg
	MemoryTotal int64         `json:"memoryTotal"` // memory of the host in bytes
	Samples     []Sample      `json:"samples,omitempty"`
	GPUs        []GPUUse      `json:"gpus,omitempty"`
	Every       time.Duration `json:"every"`             // time between two elements of Samples
	Trouble     string        `json:"trouble,omitempty"` // why some values are missing; empty if none are
}

// Sample is one measurement of a host's usage. Rates in it are averages since
// the previous sample. HostUse.Samples has at most MaxSamples elements, the
// newest last.
type Sample struct {
	CPU      float32 `json:"cpu"`      // number of busy processors, such as 1.5
	Memory   int64   `json:"memory"`   // bytes of memory that are not available to new programs
	Received int64   `json:"received"` // received bytes per second, all network interfaces except loopback
	Sent     int64   `json:"sent"`
	GPU      float32 `json:"gpu"` // sum of the utilization of all GPUs, from 0 to 1 for each GPU; negative if not measured
}

// GPUUse is the usage of one GPU. A number that nvidia-smi does not report is
// -1.
type GPUUse struct {
	Index       int     `json:"index"`
	Name        string  `json:"name,omitempty"`
	Percent     int     `json:"percent"`
	MemoryUsed  int64   `json:"memoryUsed"` // used GPU memory in bytes
	MemoryTotal int64   `json:"memoryTotal"`
	Temperature int     `json:"temperature"`     // in degrees Celsius
	Power       float64 `json:"power"`           // in watts
	Owner       string  `json:"owner,omitempty"` // the task, or another process, that computes on the GPU
}

// Limits of a HostUse.
const (
	MaxSamples  = 180
	MaxGPUs     = 64
	SampleEvery = 5 * time.Second // the last MaxSamples samples cover 15 minutes
)

// Bounded returns u without the samples and GPUs that exceed MaxSamples and
// MaxGPUs. An agent of another plx version may send more.
func (u HostUse) Bounded() HostUse {
	u.Samples = u.Samples[max(0, len(u.Samples)-MaxSamples):]
	u.GPUs = u.GPUs[:min(len(u.GPUs), MaxGPUs)]
	return u
}
