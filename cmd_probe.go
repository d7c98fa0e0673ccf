package main

import (
	"errors"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
)

func (c *command) probeCommand() *cli.Command {
	return &cli.Command{
		Name: "probe", Usage: "show the hosts: reachable, GPUs, who uses them, cores, memory",
		Flags:  targetFlags(jsonFlag(), probeFlag()),
		Action: c.probe,
	}
}

func (c *command) probe(ctx *cli.Context) error {
	if err := noArguments(ctx); err != nil {
		return err
	}
	r, _, err := target(ctx)
	if err != nil {
		return err
	}
	if len(r.Hosts) == 0 {
		r.LocalHosts, r.LocalWorkers = 1, 1
	}
	t := c.terminal(ctx)
	base, cancel := c.context()
	defer cancel()
	rows, err := hosts.Probe(base, r, t)
	if err != nil {
		return err
	}
	if ctx.Bool("json") {
		err = gpuprobe.JSON(t.JSON(), rows)
	} else {
		err = hosts.PrintProbed(t, rows)
	}
	var hints []string
	for _, row := range rows {
		if row.Err != nil {
			c.code = exit.CodePlx // the exit status shows that a probe failed; the error itself is printed in the host's row
			hints = append(hints, exit.Hint(row.Err))
		}
		err = errors.Join(err, row.Unmet)
	}
	slices.Sort(hints)
	for _, hint := range slices.Compact(hints) {
		if hint != "" {
			console.NewPrinter(t).Printf("hint: %s", hint)
		}
	}
	return err
}
