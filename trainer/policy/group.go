package policy

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
