package ssh

import (
	"testing"
	"testing/synctest"
	"time"
)

// The last output of a command may arrive after its exit status, even if the
// command printed nothing for a long time before.
func TestRunWaitsForOutputAfterExitStatus(t *testing.T) {
	for name, c := range map[string]struct{ drained, want time.Duration }{
		"it comes":                    {drainIdle - time.Second, drainIdle - time.Second},
		"a process in the background": {time.Hour, drainIdle + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, drained := time.Now(), make(chan error, 2)
				s := &session{exit: make(chan error, 1)}
				s.exit <- nil
				arrives := time.AfterFunc(c.drained, func() {
					drained <- nil
					drained <- nil
				})
				defer arrives.Stop()
				err := (&Client{}).await(t.Context(), s, nil, drained, func() bool { return true })
				if took := time.Since(begun); err != nil || took != c.want {
					t.Errorf("it took %v, want %v: %v", took, c.want, err)
				}
			})
		})
	}
}
