package policy

import (
	"fmt"
	"slices"
)

// Architecture says where variables are held, by its name.
type Architecture string

// The architectures: servers hold everything, workers do, or servers hold what is
// sparse and workers the rest.
const (
	Servers   Architecture = "ps"
	AllReduce Architecture = "allreduce"
	Hybrid    Architecture = "hybrid"
)

var architectures = []Architecture{Servers, AllReduce, Hybrid}

// ParseArchitecture reads an architecture's name.
func ParseArchitecture(text string) (Architecture, error) {
	if a := Architecture(text); slices.Contains(architectures, a) {
		return a, nil
	}
	return "", fmt.Errorf("architecture %q: want ps, allreduce or hybrid", text)
}

func (a Architecture) String() string { return string(a) }

// OnWorkers reports whether workers hold the sparse or the dense variables.
func (a Architecture) OnWorkers(sparse bool) bool { return a == AllReduce || a == Hybrid && !sparse }

// Choose returns the architecture for a model with sparse and dense variables,
// or not, and the reason if it is not what was wished for. A wish is an
// architecture's name; "" and auto leave the choice open.
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
