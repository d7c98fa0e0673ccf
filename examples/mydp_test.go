package examples_test

import "testing"

// Two workers that average gradients in their own hook have the same losses as
// two that leave it to plx. After each step, the program itself compares the
// workers' gradients. A single worker has no other worker to average with.
func TestMyDPTrainsAsPlxDoes(t *testing.T) {
	path := program(t, "mydp")
	for _, workers := range []int{1, 2} {
		byHand := run(t, path, 0, workers, "--steps=41", "--arch=allreduce")
		byPlx := run(t, path, 0, workers, "--steps=41", "--arch=allreduce", "--by-plx")
		losses := series(t, byHand, "loss")
		if byHand != byPlx || len(losses) != 3 || losses[2] > 0.9*losses[0] {
			t.Errorf("%d workers: by hand\n%sby plx\n%s", workers, byHand, byPlx)
		}
	}
}
