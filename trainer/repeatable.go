package trainer

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
)

// repeatable compares what the leaves of a model begin with each time it is built. In two
// builds of one process, values that the clock seeds are as different as in two runs.
type repeatable struct {
	first map[string][sha256.Size]byte // hash by name, of the first build; nil before it
	more  bool                         // there was a second build
}

// see takes the leaves of one more build. A nil repeatable compares nothing.
func (r *repeatable) see(leaves gorgonia.Nodes, tables []*Embedding) error {
	if r == nil || r.more {
		return nil
	}
	seen := map[string][sha256.Size]byte{}
	for _, n := range leaves {
		values := memory.Aligned(memory.Elements(n.Shape()) * int(n.Dtype().Size()))
		if err := memory.Copy(values, n.Value()); err != nil {
			return fmt.Errorf("variable %q: first value: %w", n.Name(), err)
		}
		seen[n.Name()] = sha256.Sum256(values)
	}
	for _, e := range tables {
		seen[e.Name] = sha256.Sum256(fmt.Append(nil, e.First.init))
	}
	if r.first == nil {
		r.first = seen
		return nil
	}
	r.more = true
	var differ []string
	for name, hash := range seen {
		if was, ok := r.first[name]; ok && was != hash {
			differ = append(differ, name)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return config.HintError{
		Text: fmt.Sprintf("variable %q begins with other values each time the model is built, so another run has other bits than --digest and --virtual-workers promise", slices.Min(differ)),
		Help: "take first values from the job's seed: job.GlorotUniform() in place of gorgonia.WithInit(gorgonia.GlorotU(1)), for example",
	}
}
