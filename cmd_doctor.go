package main

import (
	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/doctor"
	"github.com/plx-run/plx/launcher/exit"
)

func (c *command) doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "find problems on the hosts before a launch fails",
		Description: "It prints one line for each problem, with a remedy and the names of all hosts that have\n" +
			"it. An error makes a launch fail; after a warning a launch works, but programs may fail\n" +
			"later: docs/doctor.md lists the checks. It starts no job and repairs nothing. Like a\n" +
			"launch it leaves plx's agent in ~/.plx on the hosts.\n\n" +
			"Exit status: 0 if there is no error, 125 if there is one, 2 for wrong flags.",
		Flags: targetFlags(jsonFlag(), probeFlag(),
			&cli.StringFlag{Name: "nic", Usage: "network interface `NAME` of each host that data will use"},
			&cli.StringFlag{Name: "port-range", Usage: "ports `LOW-HIGH` of the hosts that data will use"},
			&cli.BoolFlag{Name: "python", Usage: "check that each host has python3"},
			&cli.StringSliceFlag{Name: "check-import", Usage: "check that python3 of each host can import `MODULES` (torch,numpy); for torch, compare its CUDA version with the driver's"},
			&cli.StringFlag{Name: "path", Usage: "`FOLDERS` to put before the hosts' PATH"}),
		Action: c.doctor,
	}
}

func (c *command) doctor(ctx *cli.Context) error {
	if err := noArguments(ctx); err != nil {
		return err
	}
	cfg := doctor.Config{Python: ctx.Bool("python"), CheckImport: ctx.StringSlice("check-import"), Path: ctx.String("path")}
	var err error
	if cfg.Reach, _, err = target(ctx); err != nil {
		return err
	}
	cfg.Terminal = c.terminal(ctx)
	if cfg.Interface, err = nic(ctx); err != nil {
		return err
	}
	if cfg.PortLow, cfg.PortHigh, err = portRange(ctx.String("port-range")); err != nil {
		return err
	}
	base, cancel := c.context()
	defer cancel()
	d, err := doctor.Examine(base, cfg)
	if err != nil {
		return err
	}
	if d.Fails() {
		c.code = exit.CodePlx
	}
	if ctx.Bool("json") {
		return d.JSON(cfg.Terminal.JSON())
	}
	return d.Print(cfg.Terminal)
}
