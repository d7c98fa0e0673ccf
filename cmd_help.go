package main

import "github.com/urfave/cli/v2"

// helpCommand returns the command "plx help".
func helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "describe plx or one of its commands", ArgsUsage: "[COMMAND]",
		Action: func(ctx *cli.Context) error {
			name := ctx.Args().First()
			if name == "" {
				printHelp(ctx.App.Writer, "", ctx.App)
				return nil
			}
			about := ctx.App.Command(name)
			if about == nil {
				return unknownCommandError(ctx, name)
			}
			printHelp(ctx.App.Writer, "", about)
			return nil
		},
	}
}
