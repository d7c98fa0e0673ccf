//go:build long

package examples_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/pictures"
)

// Evaluating a checkpoint, or the best checkpoint, gives the same accuracy as
// the training printed. A training for other classes starts with all variables
// of a checkpoint except the last layer. A checkpoint of another depth is
// rejected.
func TestResNetCheckpoints(t *testing.T) {
	path, dir := program(t, "resnet"), t.TempDir()
	folder, records := pictures.Write(t, 24)
	common := []string{"--depth=18", "--size=32", "--batch-size=8", "--warm-up=0", "--learning-rate=0.2"}
	trained := alone(t, path, append(common, "--steps=6", "--data="+folder, "--validation="+folder, "--ckpt-dir="+dir)...)
	tops := series(t, trained, "top-1")
	if len(tops) != 2 {
		t.Fatalf("it prints\n%s", trained)
	}
	evaluations := regexp.MustCompile(`evaluation of 24 pictures .*\n`).FindAllString(trained, -1)
	best := 1
	if tops[0] >= tops[1] {
		best = 0
	}
	for name, c := range map[string]struct{ step, evaluation int }{dir: {6, 1}, filepath.Join(dir, "best"): {3 * (best + 1), best}} {
		want := fmt.Sprintf("resnet-18 | checkpoint of step %d | 3 classes\n%s", c.step, evaluations[c.evaluation])
		if got := alone(t, path, append(common, "--validation="+folder, "--evaluate="+name)...); got != want {
			t.Errorf("%s: prints\n%swant\n%s", name, got, want)
		}
		if name == dir {
			continue
		}
		if got := run(t, path, 0, 2, append(common, "--validation="+folder, "--evaluate="+name)...); got != want {
			t.Errorf("%s: 2 workers print\n%swant\n%s", name, got, want)
		}
	}
	five := append(common, "--steps=1", "--data="+records, "--classes=5", "--first-label=1", "--init-from="+dir)
	stdout, stderr, err := refused(t, path, five...)
	if err != nil || !strings.Contains(stdout, "| 5 classes |") || !strings.Contains(stderr, "100 variables of 102 begin with the values of checkpoint ") ||
		!strings.Contains(stderr, `variables with the program's initial values: "classes.w" (there float32 of shape (512, 3), here float32 of shape (512, 5)), "classes.b" (`) {
		t.Errorf("with another head: %v\n%s%s", err, stdout, stderr)
	}
	for what, arguments := range map[string][]string{
		`--evaluate: open checkpoint: checkpoint `:                                             {"--depth=34", "--validation=" + folder, "--evaluate=" + dir},
		`variable "stage1.2.1.w" is not in the checkpoint`:                                     {"--depth=34", "--data=" + folder, "--ckpt-dir=" + dir},
		`variable "classes.w" has shape [512 3] in the checkpoint and [512 4] in this program`: {"--validation=" + records, "--classes=4", "--evaluate=" + dir},
	} {
		_, stderr, err := refused(t, path, append(common, arguments...)...)
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr, what) || !strings.Contains(stderr, "give the flags that choose them as they were then") {
			t.Errorf("%s: %v, want %q\n%s", arguments, err, what, stderr)
		}
	}
}
