package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func overview(app *cli.App) string {
	var page strings.Builder
	fmt.Fprintf(&page, "%% plx 1\n\n# NAME\n\nplx - %s\n\n# SYNOPSIS\n\n**plx** COMMAND [FLAGS] [ARGUMENTS]\n\n# COMMANDS\n", app.Usage)
	for _, c := range app.VisibleCommands() {
		fmt.Fprintf(&page, "\n**plx-%s**(1)\n: %s\n", c.Name, escaped(c.Usage))
	}
	fmt.Fprintf(&page, "\n# EXIT STATUS\n%s", verbatim(app.Description))
	return page.String()
}

func manPage(c *cli.Command) string {
	var page strings.Builder
	fmt.Fprintf(&page, "%% plx-%s 1\n\n# NAME\n\nplx-%[1]s - %s\n\n# SYNOPSIS\n\n**plx %[1]s** [FLAGS] %[3]s\n", c.Name, escaped(c.Usage), escaped(c.ArgsUsage))
	if c.Description != "" {
		fmt.Fprintf(&page, "\n# DESCRIPTION\n%s", verbatim(c.Description))
	}
	heading := ""
	for _, f := range c.VisibleFlags() {
		if f == cli.HelpFlag {
			continue
		}
		if h := headingOf(f); h != heading {
			fmt.Fprintf(&page, "\n# %s\n", strings.ToUpper(h))
			heading = h
		}
		left, right, _ := flagHelp(f.(cli.DocGenerationFlag))
		fmt.Fprintf(&page, "\n**%s**\n: %s\n", escaped(left), escaped(right))
	}
	return page.String() + "\n# SEE ALSO\n\n**plx**(1)\n"
}

// escaped returns text with all special characters of Markdown escaped.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, `[`, `\[`, `]`, `\]`, `<`, `\<`, "`", "\\`").Replace(text)
}

// verbatim returns text as a Markdown code block, which keeps its lines.
func verbatim(text string) string { return "\n```\n" + text + "\n```\n" }
