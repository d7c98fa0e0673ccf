package protocol

// LockPrefix begins the abstract names of the sockets that book GPUs. Other versions of plx
// use the same names, so what they mean must not change.
const LockPrefix = "plx-gpu-"

// MostLocks bounds the list of a host's locks, in bytes: some thousand locks.
const MostLocks = 1 << 20

// Reserve asks an agent to wait for GPUs and to hold them until it gets the Spec of the job. An
// agent that holds any, or waits, ends if it hears nothing for a minute.
type Reserve struct {
	Ask    string  `json:"ask"`    // ReserveQueue, ReserveTake, ReserveDrop or ReserveLeave
	Ticket string  `json:"ticket"` // of the launch; earlier ones sort before it
	Claims []Claim `json:"claims"` // what the launch books on the host
}

// Values of Reserve.Ask.
const (
	ReserveQueue = "queue" // enter the queues, and tell who comes first
	ReserveTake  = "take"  // take all locks, or keep them
	ReserveDrop  = "drop"  // give the locks up, and stay in the queue
	ReserveLeave = "leave" // give the locks up, and leave the queues
)

// Reservation is the answer to a Reserve.
type Reservation struct {
	Ahead []string `json:"ahead,omitempty"` // tickets of launches that come first
	Cause string   `json:"cause,omitempty"` // why the locks were not taken; "": they were, or nobody asked
}
