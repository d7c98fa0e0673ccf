package trainer

import (
	"context"
	"strings"
	"testing"
	"time"

	"gorgonia.org/tensor"
)

// lines is a log writer that sends each line to a channel, so that a test can
// wait for a line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A worker that waits for other tasks must log that, both in a training step
// and in a collective.
func TestWaitingIsLogged(t *testing.T) {
	for _, what := range []string{"step 1 is computed here", "barrier"} {
		tj := newTestJob(t, 2, 1)
		log, said := make(lines, 100), make(chan struct{})
		tj.jobs[0].log.out, tj.jobs[0].log.firstWait = log, time.Millisecond
		tj.jobs[1].log.firstWait = time.Hour
		for rank, err := range tj.all(func(j *Job) error {
			r, err := j.Parallelize(t.Context(), mlp(tensor.Float32, Mean, 8, 3), SGD(0.1), GlobalBatch(4))
			if err != nil {
				return err
			}
			from, to := r.Rows()
			step := func() error {
				_, err := r.Step(t.Context(), rows(tensor.Float32, 0, from, to, 8, 3))
				return err
			}
			if err := step(); err != nil {
				return err
			}
			if j.IsChief() {
				go func() {
					defer close(said)
					for !strings.Contains(<-log, what) {
					}
				}()
			} else {
				<-said
			}
			if what == "barrier" {
				return j.Barrier(context.Background())
			}
			return step()
		}) {
			if err != nil {
				t.Errorf("%s: worker:%d: %v", what, rank, err)
			}
		}
	}
}
