package trainer

import (
	"errors"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/random"
)

// CheckParameters must pass if all workers have the same variables, after
// every step if the program asks for that.
func TestCheckParametersPasses(t *testing.T) {
	for _, at := range layouts {
		for name, x := range everything() {
			tj := newTestJob(t, 3, at.servers, Arch(at.arch), scattered, flags(func(c *config.Config) { c.CheckParameters = 2 }))
			if _, err := x.together(tj); err != nil {
				t.Errorf("%s, %s: %v", at.arch, name, err)
			}
		}
	}
}

// If a single bit of a variable differs on one worker, CheckParameters and the
// check inside Step must find it and name the variable.
func TestCheckParametersFindsABit(t *testing.T) {
	x := everything()["mlp with dropout"]
	for name, inStep := range map[string]bool{"CheckParameters": false, "--check-parameters": true} {
		t.Run(name, func(t *testing.T) {
			for trial := range uint64(4) {
				bits := random.New(trial, name).Bits(0)
				variable, poked := int(bits[0]%6), 1+int(bits[1]%2)
				tj := newTestJob(t, 3, 0, Arch("allreduce"))
				for rank, j := range tj.jobs {
					if inStep && rank != poked {
						j.config.CheckParameters = 3
					}
				}
				names := make([]string, 3)
				errs := tj.all(func(j *Job) error {
					r, err := j.Parallelize(t.Context(), x.build(1), x.opt, x.options...)
					if err != nil {
						return err
					}
					from, to := r.Rows()
					for step := range 3 {
						if _, err := r.Step(t.Context(), x.feed(step, from, to)); err != nil {
							return err // with the check inside Step, this error is the expected one
						}
					}
					names[j.WorkerID()] = r.training.declared.Variables[variable].Name
					if j.WorkerID() == poked { // without the check inside Step, the other workers wait here for this one
						memory := r.training.group.Memory()[variable]
						memory[int(bits[2])%len(memory)] ^= 1 << (bits[3] % 8)
					}
					return j.CheckParameters(t.Context())
				})
				for rank, err := range errs {
					want := `after step 3 variable "` + names[poked] + `" of worker:` + string(rune('0'+poked)) + " differs from that of worker:0"
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("worker:%d: %v; want %q", rank, err, want)
					}
				}
			}
		})
	}
}

func TestCheckParametersNeedsASession(t *testing.T) {
	if err := soloJob(&strings.Builder{}).CheckParameters(t.Context()); err == nil || !strings.Contains(err.Error(), "call Parallelize first") {
		t.Error(errors.Join(errors.New("got"), err))
	}
}
