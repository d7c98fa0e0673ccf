package protocol

// WantKept asks for what a host has recorded about a job: its metrics and
// events. The request works both while the job runs and after its end.
type WantKept struct {
	HostJob
	Bytes  int  `json:"bytes"`            // largest total size in bytes of the metric histories in the reply; values above MaxKept count as MaxKept
	Events bool `json:"events,omitempty"` // true if the reply also contains the events of a detached job
}

// MaxKept is the largest total size in bytes of Kept.Histories. Histories of
// this size, encoded as JSON, fit into one message.
const MaxKept = 8 << 20

// OfHost is the key in Kept.Histories for the usage of the host itself (CPU,
// memory, network, GPUs).
const OfHost = "host"

// Kept is the result of the method DoKept.
type Kept struct {
	// Histories maps the name of a task, or OfHost, to an encoded
	// metrics.History.
	Histories map[string][]byte `json:"histories,omitempty"`
	Events    []byte            `json:"events,omitempty"`  // content of the host's event file, in the format of package event; nil if there is none
	Damaged   []string          `json:"damaged,omitempty"` // a message for each recorded file that could not be read
}
