package cluster

import "strconv"

// torch returns the environment variables that torchrun sets for a worker.
// TORCHELASTIC_USE_AGENT_STORE=False makes worker 0 serve PyTorch's key-value
// store itself, because plx has no such store.
func (c Contract) torch() []string {
	f := c.Foreign
	rank, workers := strconv.Itoa(c.Task.Index), strconv.Itoa(c.WorldSize)
	env := []string{
		"MASTER_ADDR=" + f.MasterAddr,
		"MASTER_PORT=" + strconv.Itoa(f.MasterPort),
		"RANK=" + rank,
		"WORLD_SIZE=" + workers,
		"LOCAL_RANK=" + strconv.Itoa(c.LocalRank),
		"LOCAL_WORLD_SIZE=" + strconv.Itoa(c.LocalWorldSize),
		"GROUP_RANK=" + strconv.Itoa(f.GroupRank),
		"GROUP_WORLD_SIZE=" + strconv.Itoa(f.Groups),
		"ROLE_NAME=default", // torchrun's default value
		"ROLE_RANK=" + rank,
		"ROLE_WORLD_SIZE=" + workers,
		"TORCHELASTIC_RUN_ID=" + c.Job,
		"TORCHELASTIC_RESTART_COUNT=" + strconv.Itoa(f.Restarts),
		"TORCHELASTIC_MAX_RESTARTS=" + strconv.Itoa(f.MaxRestarts),
		"TORCHELASTIC_USE_AGENT_STORE=False",
	}
	if f.ErrorFile != "" {
		env = append(env, "TORCHELASTIC_ERROR_FILE="+f.ErrorFile)
	}
	return env
}
