package protocol

// WantKept asks for what a host has recorded about a job: its metrics and
// events. It works while the job runs and after the job has ended.
type WantKept struct {
	HostJob
	Bytes  int  `json:"bytes"`            // largest total size of the metric histories in the answer; capped at MaxKept
	Events bool `json:"events,omitempty"` // true: the answer also has the events of a detached job
}

// MaxKept is the largest total size in bytes of Kept.Histories. Encoded as
// JSON, that much fits into one message.
const MaxKept = 8 << 20

// OfHost is the key in Kept.Histories of the host's own usage (CPU, memory,
// network, GPUs).
const OfHost = "host"

// Kept is the result of the method DoKept.
type Kept struct {
	// Histories maps the name of a task, or OfHost, to an encoded
	// metrics.History.
	Histories map[string][]byte `json:"histories,omitempty"`
	Events    []byte            `json:"events,omitempty"`  // content of the host's event file, in the format of package event; nil if there is none
	Damaged   []string          `json:"damaged,omitempty"` // a message for each recorded file that could not be read
}
