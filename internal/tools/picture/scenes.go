package main

import "regexp"

// scene describes a picture: the commands typed on a terminal, and when to
// capture the screen.
type scene struct {
	name          string // base name of the files in docs
	shows         string // alternative text for readers who cannot see the picture
	columns, rows int    // size of the terminal in characters
	commands      []string
	until         *regexp.Regexp // the screen is captured as soon as it matches
}

// prompt matches a screen that shows a shell's prompt after the last command.
var prompt = regexp.MustCompile(`\n\$ *\n*$`)

// README.md contains the commands of the first scene too, except for the
// deliberate mistake at its end.
var scenes = []scene{
	{
		name: "terminal", shows: "A terminal with commands of plx and what they print", columns: 88, rows: 40, until: prompt,
		commands: []string{
			"plx probe --hosts resources.txt",
			"plx launch --hosts resources.txt --workdir examples/torch python3 train.py",
			"plx launch --hosts resources.txt python3 -c 'import nonsense'",
		},
	},
	{
		name: "status", shows: "A terminal with lines of a training, and below them what the job does", columns: 100, rows: 24,
		commands: []string{"plx launch --hosts resources.txt --workdir folds python3 train.py"},
		until:    regexp.MustCompile(`running \d+s \| step .* \| loss .* steps/s \| .* left \| 4 tasks\n*$`),
	},
	{
		name: "top", shows: "plx top with the hosts, tasks, loss and log of a PyTorch program", columns: 100, rows: 36,
		commands: []string{"plx launch --detach --name folds --hosts resources.txt --workdir folds python3 train.py", "plx top"},
		until:    regexp.MustCompile(`(?s)running 1m[1-9].* left \| .*cpu.*slowest: worker:3 on h2.*LOSS`),
	},
	{
		name: "top-trainer", shows: "plx top with the hosts, tasks, loss and log of a program of plx's trainer", columns: 100, rows: 36,
		commands: []string{"plx launch --detach --name mlp --hosts resources.txt ./examples/mlp --arch ps --niters 50000 --learning-rate 0.01", "plx top"},
		until:    regexp.MustCompile(`(?s)running 1m[1-9].* steps/s.*cpu.*ps:1.*LOSS`),
	},
}
