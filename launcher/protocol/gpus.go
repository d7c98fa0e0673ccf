package protocol

// LockPrefix begins the abstract names of the sockets that book GPUs. Other versions of plx
// use the same names, so what they mean must not change.
const LockPrefix = "plx-gpu-"

// MostLocks bounds the list of a host's locks, in bytes: some thousand locks.
const MostLocks = 1 << 20

// Booking is what "plx agent gpus" is asked, as lines of JSON on its standard input. The
// process holds what it has until it is handed over, or its input ends or is silent for
// a while.
type Booking struct {
	Ask    string  `json:"ask"`              // BookingQueue, BookingTake or BookingDrop
	Ticket string  `json:"ticket,omitempty"` // of the launch; earlier ones sort before it
	Claims []Claim `json:"claims,omitempty"` // what the launch books on the host; counts in the first line only
}

// Values of Booking.Ask.
const (
	BookingQueue = "queue" // enter the queues, and tell who comes first
	BookingTake  = "take"  // take all locks, or keep them
	BookingDrop  = "drop"  // give the locks up, and stay in the queue
)

// BookingAnswer is the answer to a Booking.
type BookingAnswer struct {
	Ahead  []string `json:"ahead,omitempty"`  // tickets of launches that come first
	Cause  string   `json:"cause,omitempty"`  // why the locks were not taken; "": they were, or nobody asked
	Socket string   `json:"socket,omitempty"` // where "agent start" gets the locks; "": they are not held
}
