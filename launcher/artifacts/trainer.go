package artifacts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/trainer/cluster"
)

// trainerPackage is plx's trainer as go list names it.
const trainerPackage = "github.com/plx-run/plx/trainer"

// LinksTrainer reports whether a program links plx's trainer, and so can use parameter
// servers. Of a script, and of a command of the hosts, it reports false: what they
// start is not known here.
func LinksTrainer(ctx context.Context, program string) (bool, error) {
	kind, err := KindOf(program)
	if err != nil {
		return false, err
	}
	switch kind {
	case Local:
		return marked(program)
	case GoPackage:
		return importsTrainer(ctx, program)
	}
	return false, nil
}

func marked(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, exit.WithCode(fmt.Errorf("program %s: %w", path, err), exit.CodeNotRunning)
	}
	defer f.Close() // only read
	found, err := cluster.Marked(f)
	if err != nil {
		return false, exit.WithCode(fmt.Errorf("program %s: %w", path, err), exit.CodeNotRunning)
	}
	return found, nil
}

// importsTrainer looks at a package folder before it is built. A package that go list
// refuses does not build, and go build says why.
func importsTrainer(ctx context.Context, folder string) (bool, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", ".")
	cmd.Dir = folder
	packages, err := cmd.Output()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil && slices.Contains(strings.Fields(string(packages)), trainerPackage), nil
}
