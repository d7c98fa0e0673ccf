package policy

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
