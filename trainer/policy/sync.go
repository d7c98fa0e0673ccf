package policy

// sync: every step takes the gradients of all workers. A checkpoint has the
// same steps of all of them, and the loss of a worker ends the training.
var synchronous = Mode{
	Name:   "sync",
	InStep: true,
}
