package protocol

import "time"

// HostUse is how much of a host is used.
type HostUse struct {
	CPUs        int           `json:"cpus"`
	Load        float64       `json:"load"`        // of the last minute, as the kernel tells it
	MemoryTotal int64         `json:"memoryTotal"` // in bytes
	Samples     []Sample      `json:"samples,omitempty"`
	GPUs        []GPUUse      `json:"gpus,omitempty"`
	Every       time.Duration `json:"every"`             // between two samples
	Trouble     string        `json:"trouble,omitempty"` // why something is missing; "": nothing is
}

// Sample is how much of a host was used for a while. The newest is the last of HostUse.Samples,
// which has at most MaxSamples.
type Sample struct {
	CPU      float32 `json:"cpu"`      // processors that were busy, such as 1.5
	Memory   int64   `json:"memory"`   // bytes that are not available to programs
	Received int64   `json:"received"` // bytes a second through all interfaces but the loopback
	Sent     int64   `json:"sent"`
	GPU      float32 `json:"gpu"` // GPUs that were busy, such as 1.5; negative: not asked
}

// GPUUse is how much of a GPU is used. Numbers that the tool does not tell are -1.
type GPUUse struct {
	Index       int     `json:"index"`
	Name        string  `json:"name,omitempty"`
	Percent     int     `json:"percent"`
	MemoryUsed  int64   `json:"memoryUsed"` // in bytes
	MemoryTotal int64   `json:"memoryTotal"`
	Temperature int     `json:"temperature"`     // in degrees Celsius
	Power       float64 `json:"power"`           // in watts
	Owner       string  `json:"owner,omitempty"` // the task or the user's process that computes on it
}

// Bounds of a HostUse.
const (
	MaxSamples  = 180
	MaxGPUs     = 64
	SampleEvery = 5 * time.Second // so that MaxSamples are 15 minutes
)

// Bounded returns u without what exceeds the bounds: an agent of another version may tell more.
func (u HostUse) Bounded() HostUse {
	u.Samples = u.Samples[max(0, len(u.Samples)-MaxSamples):]
	u.GPUs = u.GPUs[:min(len(u.GPUs), MaxGPUs)]
	return u
}
