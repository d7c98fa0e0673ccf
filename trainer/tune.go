package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/mesh"
	"github.com/plx-run/plx/trainer/owner"
)

// tuner reports what travels, and moves rows of tables between their owners
// while training goes on. At some step boundaries, which all workers know
// beforehand, they meet: they add up what they have measured, the chief
// decides, and all do what it says. It changes where rows lie, and nothing of
// what is computed.
type tuner struct {
	r     *Replica
	first int       // steps that were made before this run
	meet  int       // after so many steps; 0: never again
	met   int       // steps at the last meeting
	marks *marks    // since then
	told  bool      // what travels was reported
	chief *director // nil on other workers
}

// plan is what the chief decides at a meeting.
type plan struct {
	Meet   int           `json:"meet"`             // the next meeting
	Pieces []owner.Piece `json:"pieces,omitempty"` // where everything is to lie; none: where it is
}

// maxPlan bounds a plan in bytes.
const maxPlan = 16 << 20

// newTuner returns nil where workers do not take their steps together, or
// nothing travels.
func (r *Replica) newTuner() *tuner {
	if !r.declared.Sync.Together() || r.job.NumWorkers()+len(r.job.servers()) == 1 {
		return nil
	}
	t := &tuner{r: r, first: r.step, met: r.step, meet: r.step + r.job.config.tell, marks: newMarks(r)}
	if r.declared.Movable {
		t.meet = r.step + r.job.config.look
	}
	if r.job.IsChief() {
		t.chief = newDirector(r)
	}
	return t
}

// meets reports whether the workers meet after so many steps: then nothing is
// pulled ahead, for it would come from owners that may have changed.
func (t *tuner) meets(steps int) bool { return t != nil && steps == t.meet }

// looksAt reports whether gradients of a step are looked at for rows of zeros.
func (t *tuner) looksAt(step int) bool { return t != nil && step == t.first+filledAt }

// pulled counts the rows that a step has got.
func (t *tuner) pulled(tables []table) {
	if t == nil || t.meet == 0 {
		return
	}
	for i, of := range tables {
		t.marks.pulled(i, of.wanted(false).Index)
	}
}

// after is called by every worker after every step that all took.
func (t *tuner) after(ctx context.Context, steps int, took time.Duration) error {
	if t == nil {
		return nil
	}
	if t.chief != nil {
		t.chief.took(took)
	}
	if steps != t.meet {
		return nil
	}
	p, err := t.confer(ctx, steps)
	if err == nil && len(p.Pieces) > 0 {
		err = t.move(ctx, steps, p.Pieces)
	}
	if err != nil {
		return fmt.Errorf("meeting after step %d: %w", steps, err)
	}
	t.meet, t.met = p.Meet, steps
	return nil
}

// confer adds up what was measured, and returns what the chief makes of it.
func (t *tuner) confer(ctx context.Context, steps int) (p plan, err error) {
	m, window := t.r.job.mesh, steps-t.met
	sum, exchanged := t.marks.take(), t.marks.exchanged(t.r)
	if err := mesh.AllReduce(ctx, m, sum.all); err != nil {
		return p, err
	}
	if steps >= t.first+t.r.job.config.tell && !t.told {
		t.told = true
		if err := t.tell(ctx, window, sum, exchanged); err != nil {
			return p, err
		}
	}
	var said []byte
	if t.chief != nil {
		if p, err = t.chief.decide(ctx, steps, sum); err != nil {
			return p, err
		}
		if said, err = json.Marshal(p); err != nil {
			return p, err
		}
	}
	all, err := mesh.AllGatherBytes(ctx, m, said, maxPlan)
	if err != nil {
		return p, err
	}
	if err = json.Unmarshal(all[0], &p); err != nil {
		return p, fmt.Errorf("the chief's plan: %w", err)
	}
	return p, nil
}

// tell makes the chief report what was exchanged in a window of steps.
func (t *tuner) tell(ctx context.Context, window int, sum numbers, exchanged []float64) error {
	var all []float64
	if t.chief != nil {
		all = make([]float64, len(exchanged)*t.r.job.NumWorkers())
	}
	if err := mesh.Gather(ctx, t.r.job.mesh, exchanged, all, 0); err != nil {
		return err
	}
	if t.chief != nil {
		t.chief.report(window, sum, all)
	}
	return nil
}

// move gives rows their new owners.
func (t *tuner) move(ctx context.Context, steps int, pieces []owner.Piece) error {
	r, begin := t.r, time.Now()
	if err := r.client.Repartition(ctx, pieces); err != nil {
		return err
	}
	r.declared.Pieces = pieces
	if t.chief != nil {
		t.chief.moved(steps, time.Since(begin))
	}
	r.hooks.trace.Span("step", fmt.Sprintf("repartition after step %d", steps), begin, time.Now())
	return nil
}
