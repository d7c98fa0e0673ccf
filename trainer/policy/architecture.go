package policy

import "fmt"

// Home is the kind of task that holds a variable.
type Home int

// The homes.
const (
	OnServers Home = iota
	OnWorkers
)

// Architecture says where variables are held. The zero value is Servers.
type Architecture struct {
	name   string
	dense  Home
	sparse Home
}

// The architectures.
var (
	Servers   = Architecture{"ps", OnServers, OnServers}
	AllReduce = Architecture{"allreduce", OnWorkers, OnWorkers}
	Hybrid    = Architecture{"hybrid", OnWorkers, OnServers}
)

var architectures = []Architecture{Servers, AllReduce, Hybrid}

// ParseArchitecture reads an architecture's name.
func ParseArchitecture(text string) (Architecture, error) {
	for _, a := range architectures {
		if a.name == text {
			return a, nil
		}
	}
	return Architecture{}, fmt.Errorf("architecture %q: want ps, allreduce or hybrid", text)
}

// String is the name that ParseArchitecture reads.
func (a Architecture) String() string { return a.name }

// Home returns who holds a sparse or a dense variable.
func (a Architecture) Home(sparse bool) Home {
	if sparse {
		return a.sparse
	}
	return a.dense
}

// Uses reports whether tasks of a home hold anything of a model that has
// sparse and dense variables, or not.
func (a Architecture) Uses(h Home, sparse, dense bool) bool {
	return sparse && a.sparse == h || dense && a.dense == h
}

// OnlyServers reports whether no worker holds anything.
func (a Architecture) OnlyServers() bool { return !a.Uses(OnWorkers, true, true) }

// OnlyWorkers reports whether no server holds anything.
func (a Architecture) OnlyWorkers() bool { return !a.Uses(OnServers, true, true) }

// Choose returns the architecture for a model with sparse and dense variables,
// or not, and the reason if it is not what was wished for. A wish is an
// architecture's name; "" and auto leave the choice open.
func Choose(wish string, s Sync, workers, servers int, sparse, dense bool) (a Architecture, why string) {
	open := wish == "" || wish == "auto"
	a, _ = ParseArchitecture(wish) // Servers if it is open
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
