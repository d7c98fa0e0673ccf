package protocol

// WantKept asks for what a host keeps of the course of a job, while it runs and after.
type WantKept struct {
	HostJob
	Bytes  int  `json:"bytes"`            // bounds the histories together; more than MaxKept counts as that
	Events bool `json:"events,omitempty"` // also the events of a detached job
}

// MaxKept bounds the histories of a Kept in bytes. As JSON they fit into a message.
const MaxKept = 8 << 20

// OfHost is the name of the history that has the host's use.
const OfHost = "host"

// Kept answers WantKept.
type Kept struct {
	// Histories are encodings of a History of package metrics, by the name of a task or OfHost.
	Histories map[string][]byte `json:"histories,omitempty"`
	Events    []byte            `json:"events,omitempty"`  // as package event writes them; nil: the host has none
	Damaged   []string          `json:"damaged,omitempty"` // what cannot be read, and why
}
