package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
)

// Other launchers, whose flags users of plx may type by mistake.
const (
	torchrun         = "torchrun"
	mpirun           = "mpirun"
	horovodrun       = "horovodrun"
	deepspeed        = "deepspeed"
	accelerate       = "accelerate"
	srun             = "srun"
	severalLaunchers = "" // stands for several launchers that have the same flag
)

// launchers lists the programs that plx launch replaces.
var launchers = []string{torchrun, mpirun, "mpiexec", horovodrun, deepspeed, accelerate, srun}

// synonyms maps words that users may type to the plx command that they mean.
var synonyms = sync.OnceValue(func() map[string]string {
	return map[string]string{"run": "launch", "start": "launch", "submit": "launch", "ps": "jobs", "ls": "jobs", "list": "jobs", "queue": "jobs",
		"kill": "stop", "cancel": "stop", "log": "logs", "tail": "logs", "get": "fetch", "clean": "prune", "check": "doctor"}
})

// Hints for flags that several other launchers have under different names. A
// hint that begins with a dash is a flag of plx.
const (
	perHost   = "--workers-per-host N"
	allHosts  = "--hosts FILE"
	someHosts = "--include HOST"
	variables = "--env NAME=VALUE"
	chosen    = "leave it out: plx sets it for every task"
	everyHost = "leave it out: plx starts on every host of --hosts FILE"
	bound     = "leave it out: plx binds workers to their share of the cores"
	idsOfGPUs = `write the GPU ids after the host: --host "gpu01: 0,1"`
	sshConfig = "leave it out: plx reads ~/.ssh/config"
)

// counterpart describes what a user of plx does instead of using a flag of
// another launcher.
type counterpart struct {
	of   string // name of the other launcher, or severalLaunchers
	here string // equivalent plx flag, or a description of what to do instead
}

// counterparts maps flags of other launchers to what plx offers instead. A key
// has no leading dashes, and has dashes where the flag may have underscores.
var counterparts = sync.OnceValue(func() map[string]counterpart {
	return map[string]counterpart{
		"nproc-per-node": {torchrun, perHost}, "nnodes": {torchrun, everyHost}, "standalone": {torchrun, "leave it out: without hosts plx runs on this machine, --local 1x2 with two workers"},
		"node-rank": {torchrun, chosen}, "master-addr": {torchrun, chosen}, "master-port": {torchrun, chosen},
		"rdzv-backend": {torchrun, chosen}, "rdzv-endpoint": {torchrun, chosen}, "rdzv-id": {torchrun, chosen}, "rdzv-conf": {torchrun, chosen}, "local-addr": {torchrun, chosen},
		"m": {torchrun, "plx launch python3 -m MODULE"}, "module": {torchrun, "plx launch python3 -m MODULE"}, "no-python": {torchrun, "leave it out: PROGRAM is run as it is"},
		"tee": {torchrun, "--log-dir DIR"}, "redirects": {torchrun, "--log-dir DIR"},

		"np": {mpirun, "-n N"}, "c": {mpirun, "-n N"}, "npernode": {mpirun, perHost}, "N": {mpirun, perHost}, "ppn": {mpirun, perHost}, "map-by": {mpirun, perHost},
		"H": {mpirun, "--host LINE"}, "hostfile": {mpirun, allHosts}, "machinefile": {mpirun, allHosts}, "f": {mpirun, allHosts}, "hostlist": {mpirun, "--host LINE"},
		"x": {mpirun, variables}, "genv": {mpirun, variables}, "wdir": {mpirun, "--chdir FOLDER"}, "wd": {mpirun, "--chdir FOLDER"}, "bind-to": {mpirun, bound},
		"mca": {mpirun, "--nic NAME"}, "oversubscribe": {mpirun, `write as many devices as workers: --host "gpu01 slots=4"`}, "allow-run-as-root": {mpirun, "leave it out: plx runs as the user of the connection"},
		"tag-output": {mpirun, "leave it out: plx names the task before each line"}, "output-filename": {mpirun, "--log-dir DIR"}, "timeout": {mpirun, "--max-time TIME"},

		"num-proc": {horovodrun, "-n N"}, "min-np": {horovodrun, "--min-workers N"}, "min-num-proc": {horovodrun, "--min-workers N"},
		"p": {horovodrun, `write the port after the host: --host "gpu01:2222: 0,1"`}, "ssh-port": {horovodrun, `write the port after the host: --host "gpu01:2222: 0,1"`},
		"i": {horovodrun, sshConfig}, "ssh-identity-file": {horovodrun, sshConfig}, "network-interface": {horovodrun, "--nic NAME"}, "network-interfaces": {horovodrun, "--nic NAME"},

		"num-gpus": {deepspeed, perHost}, "num-nodes": {deepspeed, everyHost}, "no-ssh": {deepspeed, everyHost}, "launcher": {deepspeed, sshConfig},

		"num-processes": {accelerate, "-n N"}, "num-machines": {accelerate, everyHost}, "machine-rank": {accelerate, chosen}, "main-process-ip": {accelerate, chosen}, "main-process-port": {accelerate, chosen},
		"multi-gpu": {accelerate, "leave it out: plx starts a worker for each GPU"}, "gpu-ids": {accelerate, idsOfGPUs}, "cpu": {accelerate, `write cpu after the host: --host "gpu01: cpu"`}, "config-file": {accelerate, "plx config shows the defaults that a file sets"},

		"ntasks": {srun, "-n N"}, "ntasks-per-node": {srun, perHost}, "nodes": {srun, everyHost}, "nodelist": {srun, someHosts}, "w": {srun, someHosts},
		"gpus": {srun, idsOfGPUs}, "G": {srun, idsOfGPUs}, "gpus-per-node": {srun, perHost}, "gres": {srun, idsOfGPUs}, "gpus-per-task": {srun, "leave it out: a worker has one GPU, --visible host shows it all of its host"},
		"cpus-per-task": {srun, bound}, "cpu-bind": {srun, bound}, "export": {srun, variables}, "time": {srun, "--max-time TIME"}, "t": {srun, "--max-time TIME"},
		"job-name": {srun, "--name NAME"}, "J": {srun, "--name NAME"}, "D": {srun, "--chdir FOLDER"}, "o": {srun, "--log-dir DIR"}, "l": {srun, "leave it out: plx names the task before each line"},
		"partition": {srun, allHosts}, "mpi": {srun, chosen},

		"worker": {severalLaunchers, "-n N"}, "workers": {severalLaunchers, "-n N"}, "num-workers": {severalLaunchers, "-n N"}, "nworkers": {severalLaunchers, "-n N"}, "num-procs": {severalLaunchers, "-n N"},
		"nproc": {severalLaunchers, perHost}, "gpu": {severalLaunchers, idsOfGPUs}, "gpu-id": {severalLaunchers, idsOfGPUs}, "devices": {severalLaunchers, idsOfGPUs},
	}
})

// foreignFlagHint returns a hint for a flag of another launcher, or "" if it
// knows none. For commands other than plx launch it suggests only flags that
// the command has.
func foreignFlagHint(ctx *cli.Context, name string) string {
	if name == "worker" && ctx.Command.Name != "launch" && flagOf(ctx.Command, "rank") != nil {
		return "--rank N" // a user who types --worker wants to select an existing worker, which --rank does
	}
	c, known := counterparts()[strings.ReplaceAll(name, "_", "-")]
	if !known {
		return ""
	}
	flag, isFlag := strings.CutPrefix(c.here, "-")
	flag, _, _ = strings.Cut(strings.TrimPrefix(flag, "-"), " ")
	if ctx.Command.Name != "launch" && (!isFlag || flagOf(ctx.Command, flag) == nil) {
		return ""
	}
	if c.of == severalLaunchers {
		return c.here
	}
	if isFlag {
		return fmt.Sprintf("%s's %s is %s here", c.of, dashed(name), c.here)
	}
	return fmt.Sprintf("%s's %s: %s", c.of, dashed(name), c.here)
}
