package run

import "strings"

// Task queues.
const (
	// QueueWorkflows takes workflows and the control activities beside them.
	QueueWorkflows = "belay-workflows"
	// QueueLight takes steps that need neither a process nor a workspace.
	QueueLight = "belay-light"
	// QueueBatch takes chunks of batches of light tasks.
	QueueBatch = "belay-batch"
	queueSteps = "belay-steps"
	queueHost  = "belay-host/"
)

// StepsQueue is the shared queue on which hosts with a label take stages; the
// empty label is every host's.
func StepsQueue(label string) string {
	if label == "" {
		return queueSteps
	}
	return queueSteps + "-" + label
}

// QueueName is what a queue is called where hosts are not told apart.
func QueueName(queue string) string {
	if strings.HasPrefix(queue, queueHost) {
		return strings.TrimSuffix(queueHost, "/")
	}
	return queue
}

// HostQueue is the queue of one host since one boot of its machine, for work
// that must run where a stage's workspace and processes are.
func HostQueue(host, boot string) string {
	return queueHost + host + "/" + boot
}
