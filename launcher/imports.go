package launcher

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/imports"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
)

// importCheck imports modules on hosts, as the tasks there would.
type importCheck struct {
	cfg     Config
	command protocol.Command
	printer *console.Printer
}

// run imports the modules on all hosts, and returns equal failures once. placed has the
// tasks of each.
func (c importCheck) run(ctx context.Context, on []*hosts.AgentHost, placed []placement.Host) error {
	if len(c.cfg.CheckImport) == 0 {
		return nil
	}
	tally := c.printer.NewTally("importing "+strings.Join(c.cfg.CheckImport, ", "), len(on))
	defer tally.Stop()
	notes := make([]string, len(on))
	err := hosts.Together(ctx, on, func(i int, a *hosts.AgentHost) (err error) {
		tally.Begin(a.Name())
		defer tally.End(a.Name())
		got, err := imports.Ask(ctx, a, imports.Request{Modules: c.cfg.CheckImport, Command: c.command, Env: raws(slices.Concat(c.cfg.environ, a.Resource.Env))})
		if err == nil {
			notes[i], err = imports.Judge(got, placed[i].GPUWorkers(), a.Report.Driver)
		}
		return err
	})
	for _, note := range slices.Compact(slices.DeleteFunc(notes, func(n string) bool { return n == "" })) {
		c.printer.Printf("note: %s", note)
	}
	if err != nil {
		return exit.WithHint(fmt.Errorf("--check-import: %w", err), exit.Hint(err))
	}
	return nil
}
