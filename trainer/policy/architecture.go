package policy

import (
	"fmt"
	"slices"
)

// Architecture says which tasks hold the variables of a training: parameter
// servers, workers or both.
type Architecture string

// Servers: parameter servers hold all variables. AllReduce: workers hold all.
// Hybrid: servers hold the sparse variables (embeddings), workers the dense
// ones.
const (
	Servers   Architecture = "ps"
	AllReduce Architecture = "allreduce"
	Hybrid    Architecture = "hybrid"
)

var architectures = []Architecture{Servers, AllReduce, Hybrid}

// ParseArchitecture parses the name of an architecture: ps, allreduce or
// hybrid.
func ParseArchitecture(text string) (Architecture, error) {
	if a := Architecture(text); slices.Contains(architectures, a) {
		return a, nil
	}
	return "", fmt.Errorf("architecture %q: want ps, allreduce or hybrid", text)
}

func (a Architecture) String() string { return string(a) }

// OnWorkers reports whether workers, not servers, hold the sparse variables
// (if sparse is true) or the dense variables (if false).
func (a Architecture) OnWorkers(sparse bool) bool { return a == AllReduce || a == Hybrid && !sparse }

// Choose returns the architecture for a job. wish is the requested
// architecture; "" and "auto" leave the choice to Choose. sparse and dense
// tell whether the model has variables of that kind. why is the reason if the
// result differs from wish, else "".
func Choose(wish string, s Sync, workers, servers int, sparse, dense bool) (a Architecture, why string) {
	open := wish == "" || wish == "auto"
	a = Architecture(wish)
	switch {
	case workers == 1 && servers == 0:
		return AllReduce, "alone"
	case open && !s.InStep():
		return Servers, fmt.Sprintf("--sync %s needs servers", s)
	case open:
		a = Hybrid
	}
	switch {
	case a != Hybrid:
	case !sparse:
		return AllReduce, "no sparse variable"
	case servers == 0:
		return AllReduce, "no server"
	case !dense && wish != "auto":
		return Servers, "no dense variable"
	}
	return a, ""
}
