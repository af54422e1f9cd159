package supervisor

import (
	"errors"
	"os"
	"syscall"
)

// message is what came from the worker: an order, or a job and the descriptors
// of its output.
type message struct {
	order byte
	job   Job
	files []int
}

// workerGone is the order that nobody sends: the control socket closed.
const workerGone = 0

// listen passes on what the worker says, in its order, until it is gone.
func listen(inbox chan<- message) {
	control := os.NewFile(ControlFD, "control")
	for {
		m, err := receive()
		if err == nil && m.order == Assign {
			m.job, err = ReadJob(control)
		}
		if err != nil {
			inbox <- message{order: workerGone}
			return
		}
		inbox <- m
	}
}

// receive takes one order and the descriptors that came with it.
func receive() (message, error) {
	var order [1]byte
	oob := make([]byte, syscall.CmsgSpace(2*sizeofInt))
	for {
		n, oobn, _, _, err := syscall.Recvmsg(ControlFD, order[:], oob, syscall.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return message{}, err
		case n == 0:
			return message{}, syscall.EPIPE
		}
		files, err := descriptors(oob[:oobn])
		return message{order: order[0], files: files}, err
	}
}

// sizeofInt is the size of a descriptor in a message, a C int.
const sizeofInt = 4

func descriptors(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	parts, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []int
	for i := range parts {
		fds, err := syscall.ParseUnixRights(&parts[i])
		if err != nil {
			return nil, err
		}
		files = append(files, fds...)
	}
	return files, nil
}
