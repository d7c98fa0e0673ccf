package trainer

import (
	"net"
	"time"

	"github.com/plx-run/plx/trainer/mesh"
	"github.com/plx-run/plx/trainer/peers"
)

// How long workers wait for one another in a collective, and how long one may
// be silent; PeerTimeout and StartTimeout say the same of training.
const (
	meshStart   = 2 * time.Minute
	meshSilence = 30 * time.Second
)

// peers says who this task is to the others.
func (j *Job) peers() peers.Config {
	return peers.Config{
		Self: j.contract.Task, Key: j.key, Generation: j.contract.Generation,
		Workers: max(1, len(j.contract.Cluster.Worker)), Servers: len(j.contract.Cluster.PS), Logf: j.Logf,
	}
}

// listen opens the door to the other tasks, on the socket that the launcher
// has opened or at the address that it gave.
func (j *Job) listen() (err error) {
	var ln net.Listener
	if j.contract.ListenFD > 0 {
		ln, err = j.contract.Listener()
	} else {
		ln, err = net.Listen("tcp", j.contract.Cluster.Addr(j.contract.Task))
	}
	if err == nil {
		j.door = peers.Open(ln, j.peers())
	}
	return err
}

// openMesh prepares the collectives; connections are made when one is used.
func (j *Job) openMesh() {
	addrs := j.contract.Cluster.Worker
	if len(addrs) == 0 {
		addrs = []string{"alone"}
	}
	j.mesh = mesh.New(mesh.Config{
		Peers: j.peers(), Door: j.door, Rank: j.WorkerID(), Addrs: addrs,
		Start: meshStart, Silence: meshSilence,
	})
}

// close ends what was opened to other tasks. An error means that something of
// it may still run.
func (j *Job) close() (err error) {
	if j.depot != nil {
		err = j.depot.Close()
	}
	j.mesh.Close() // whoever is left learns it from the connection
	if j.door != nil {
		j.door.Close() // likewise
	}
	return err
}
