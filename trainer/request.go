package trainer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// checkpoint has a checkpoint made at the next step boundary, and tells the
// agent when all of it is written, or why there is none.
func (t *task) checkpoint(asked cluster.ControlMessage) {
	r := t.job.replica.Load()
	tell := func(step int, held time.Duration, err error) {
		m := cluster.ControlMessage{Kind: cluster.Checkpoint, Step: int64(step), Request: asked.Request}
		if err != nil {
			m.Cause = err.Error()
		} else if asked.Hold {
			m.Hold, m.Held = true, held
		}
		t.say(m) // obey notices a dead channel
	}
	q, err := t.job.request(asked)
	switch {
	case t.job.config.ckptDir == "":
		err = errors.New("there is no --ckpt-dir")
	case r == nil:
		err = errors.New("training has not begun")
	case r.saver == nil:
		err = fmt.Errorf("%s makes no checkpoints, the chief does", t.job.contract.Task)
	}
	if err != nil {
		tell(0, 0, err)
		return
	}
	q.tell = tell
	r.saver.ask(q)
}

// request reads what is asked for.
func (j *Job) request(m cluster.ControlMessage) (request, error) {
	q := request{hold: m.Hold, number: m.Request, workers: m.Workers}
	if !m.Hold {
		return q, nil
	}
	for _, name := range strings.Fields(m.Leaving) {
		task, err := cluster.ParseTask(name)
		if err != nil {
			return q, err
		}
		q.leaving = append(q.leaving, task)
	}
	return q, j.bears(m.Workers)
}
