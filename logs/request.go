package logs

import (
	"fmt"
	"slices"
	"time"
)

// Request says which bytes of a host's spools are wanted. It travels as JSON.
// Note that its zero value asks for none: TailLines -1 asks for all.
type Request struct {
	Tasks     []string   `json:"tasks,omitempty"` // empty: all
	From      []Position `json:"from,omitempty"`
	TailLines int        `json:"tail_lines"`     // the last lines of each source; -1: all
	Since     time.Time  `json:"since,omitzero"` // lines that were not finished before it
	Follow    bool       `json:"follow,omitempty"`
}

// Position is the first byte of a source that is wanted. When a Request has
// any, it continues an earlier one: a source that is not named starts at its
// first byte, and TailLines and Since do not apply.
type Position struct {
	Source
	Offset int64 `json:"offset"`
}

// check reports a request that no receiver would send.
func (r Request) check() error {
	for _, task := range r.Tasks {
		if err := (Source{Task: task}).check(); err != nil {
			return err
		}
	}
	for _, p := range r.From {
		if err := p.Source.check(); err != nil {
			return err
		}
		if p.Offset < 0 {
			return fmt.Errorf("%s: negative offset %d", p.Source, p.Offset)
		}
	}
	return nil
}

// wants reports whether src is asked for.
func (r Request) wants(src Source) bool {
	return len(r.Tasks) == 0 || slices.Contains(r.Tasks, src.Task)
}

// from returns the offset at which src is to be continued.
func (r Request) from(src Source) (int64, bool) {
	for _, p := range r.From {
		if p.Source == src {
			return p.Offset, true
		}
	}
	return 0, len(r.From) > 0
}
