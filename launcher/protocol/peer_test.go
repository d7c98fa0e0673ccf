package protocol

import (
	"strings"
	"testing"
)

// The texts are those of torch 1.13 to 2.5, from its source and from runs.
func TestLossOfPeer(t *testing.T) {
	const (
		frames = "Exception raised from checkForNCCLErrorsInternal at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2027 (most recent call first):\nframe #0: c10::Error::Error() + 0x57 (0x7f in libc10.so)\nframe #1: x\nframe #2: x\nframe #3: x\nframe #4: x\nframe #5: <unknown function> + 0xd6df4 (0x7f in libstdc++.so.6)\n\n"
		ours   = "Traceback (most recent call last):\n  File \"train.py\", line 7, in main\n"
	)
	for text, want := range map[string]bool{
		"RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.77.0.2]:9629":                                                                                                               true,
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [::1]:1: Connection reset by peer":                                                                                           true,
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete":                                                                    true,
		ours + "torch.distributed.DistNetworkError: Connection reset by peer":                                                                                                                                       true,
		"[rank3]: torch.distributed.DistNetworkError: The client socket has timed out after 600s while trying to connect to (10.0.0.1, 29500).":                                                                     true,
		"torch.distributed.DistNetworkError: failed to recv, got 0 bytes":                                                                                                                                           true,
		"torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.":                                                                                                     true,
		"torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer": true,
		"RuntimeError: Connection reset by peer": true,
		"RuntimeError: Broken pipe":              true,
		"RuntimeError: Socket Timeout":           true,
		"[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/x.cpp:1\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer h1<1>": true,
		"Last error:\nNET/Socket : remote process exited or there was a network error\n": true,
		"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG 0 Rank 1] NCCL watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error\n" + frames: true,
		"[rank1]:[E1127 10:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.": true,
		"[rank0]:[W1127 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, addr=[h1]:1, remote=[h2]:2): Connection reset by peer":                                                                              true,

		"":                           false,
		ours + "ValueError: no data": false,
		"requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))":                 false,
		"ConnectionResetError: [Errno 104] Connection reset by peer":                                                                          false,
		"BrokenPipeError: [Errno 32] Broken pipe":                                                                                             false,
		"RuntimeError: CUDA out of memory":                                                                                                    false,
		"torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL version 2.19.3":                               false,
		"  what():  [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n" + frames: false,
		"RuntimeError: Connection reset by peer\n" + strings.Repeat("step\n", 9) + "ValueError: x":                                            false,
	} {
		if got := LossOfPeer(strings.Split(text, "\n")); (got != "") != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
