package trainer

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
)

// repeatable detects initial values that are not reproducible, such as those
// of a generator that the clock seeds. It compares the hashes of all initial
// values in two builds of the model in one process.
type repeatable struct {
	first map[string][sha256.Size]byte // SHA-256 of each variable's initial value in the first build; nil before the first build
	more  bool                         // true once a second build was compared; the method see then ignores later builds
}

// see records the initial values of a build, or compares them with those of
// the first build. It returns an error if they differ. On a nil repeatable it
// does nothing.
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
