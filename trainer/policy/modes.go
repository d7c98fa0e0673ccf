package policy

// sync: every step takes the gradients of all workers. A checkpoint has the
// same steps of all of them, and the loss of a worker ends the training.
var synchronous = Mode{
	Name:   "sync",
	InStep: true,
}

// async: every worker's gradients are applied when they come, and nobody waits
// for another. A checkpoint has as many steps of each worker as it has taken;
// a lost worker is missed by nobody.
var asynchronous = Mode{
	Name:   "async",
	Groups: EachWorker,
	Copies: PerGroup,
	Cuts:   true,
	Losses: AnyLoss,
}

// group:G: G groups of workers. A group's workers take every step together;
// no group waits for another. A checkpoint has as many steps of each group as
// it has taken. The loss of a worker ends the training: its group needs it.
var grouped = Mode{
	Name:     "group",
	Numbered: "G",
	Groups:   AsNumbered,
	Copies:   PerGroup,
	Cuts:     true,
}
