package main

import (
	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/doctor"
	"github.com/plx-run/plx/launcher/exit"
)

func (c *command) doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "find ahead what would fail in a launch on the hosts",
		Description: "It prints a line for each finding, with its remedy, and says the same of several hosts\n" +
			"once. An error is what a launch fails for; with a warning it works, and programs may\n" +
			"meet it later: docs/doctor.md lists what is checked. It starts no job and repairs\n" +
			"nothing. Like a launch it leaves plx's agent in ~/.plx on the hosts.\n\n" +
			"Exit status: 0 if there is no error, 125 if there is one, 2 for wrong flags.",
		Flags: targetFlags(jsonFlag(), probeFlag(),
			&cli.StringFlag{Name: "nic", Usage: "data is to go over network interface `NAME` of each host"},
			&cli.StringFlag{Name: "port-range", Usage: "data is to go over ports `LOW-HIGH` of the hosts"},
			&cli.BoolFlag{Name: "python", Usage: "each host must have python3"},
			&cli.StringSliceFlag{Name: "check-import", Usage: "python3 of each host must import `MODULES` (torch,numpy); of torch, compare its CUDA with the driver"},
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
