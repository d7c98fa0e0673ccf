package protocol

// LockPrefix begins the name of every abstract Unix socket that serves as a
// lock on a GPU. Other versions of plx use the same names, so their format
// must not change.
const LockPrefix = "plx-gpu-"

// MostLocks is the largest size in bytes of the list of a host's GPU locks. It
// has room for several thousand locks.
const MostLocks = 1 << 20

// Reserve asks an agent to queue for GPUs and to lock them. The agent holds
// the locks until it receives the Spec of the job. An agent that queues or
// holds locks exits if it receives no message for a minute.
type Reserve struct {
	Ask    string  `json:"ask"`    // the action: ReserveQueue, ReserveTake, ReserveDrop or ReserveLeave
	Ticket string  `json:"ticket"` // position of the launch in the queues; tickets of earlier launches sort first
	Claims []Claim `json:"claims"` // GPUs of this host that the launch wants to lock
}

// Values of Reserve.Ask, which say what the agent does.
const (
	ReserveQueue = "queue" // join the GPUs' queues and report which launches are ahead
	ReserveTake  = "take"  // lock all the GPUs, or keep the locks if they are held already
	ReserveDrop  = "drop"  // release the locks but stay in the queues
	ReserveLeave = "leave" // release the locks and leave the queues
)

// Reservation is the result of the method DoReserve.
type Reservation struct {
	Ahead []string `json:"ahead,omitempty"` // tickets of the launches that are ahead of this one in a queue
	Cause string   `json:"cause,omitempty"` // why the agent could not lock the GPUs; empty if it could, or if the request was not ReserveTake
}
