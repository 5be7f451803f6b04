// Karpenter's own controllers, all of upstream's core, with a cloud provider that launches nothing and says what it is
// asked to do: a line on standard output for each creation and deletion, and one when it lists its instances.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// EC2NodeClass has of an EC2NodeClass what upstream's core reads: whether it is ready.
type EC2NodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            struct {
		Conditions []status.Condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

func (c *EC2NodeClass) DeepCopyObject() runtime.Object {
	copied := &EC2NodeClass{TypeMeta: c.TypeMeta}
	c.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Status.Conditions = append([]status.Condition(nil), c.Status.Conditions...)
	return copied
}

func (c *EC2NodeClass) StatusConditions(options ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(c, options...)
}

func (c *EC2NodeClass) GetConditions() []status.Condition { return c.Status.Conditions }

func (c *EC2NodeClass) SetConditions(conditions []status.Condition) { c.Status.Conditions = conditions }

type EC2NodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EC2NodeClass `json:"items"`
}

func (l *EC2NodeClassList) DeepCopyObject() runtime.Object {
	copied := &EC2NodeClassList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*EC2NodeClass))
	}
	return copied
}

// provider knows the instance of every NodeClaim that names one, or, with knowsNone, no instance at all.
type provider struct {
	client    client.Client
	knowsNone bool
}

func (p *provider) Create(_ context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	fmt.Println("create", claim.Name)
	return nil, fmt.Errorf("this provider launches nothing")
}

func (p *provider) Delete(_ context.Context, claim *v1.NodeClaim) error {
	fmt.Println("delete", claim.Name)
	return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("%s is gone", claim.Status.ProviderID))
}

func (p *provider) Get(ctx context.Context, providerID string) (*v1.NodeClaim, error) {
	claims, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, claim := range claims {
		if claim.Status.ProviderID == providerID {
			return claim, nil
		}
	}
	return nil, cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("%s is not known", providerID))
}

func (p *provider) List(ctx context.Context) ([]*v1.NodeClaim, error) {
	fmt.Println("list")
	if p.knowsNone {
		return nil, nil
	}
	claims := &v1.NodeClaimList{}
	if err := p.client.List(ctx, claims); err != nil {
		return nil, err
	}
	var known []*v1.NodeClaim
	for i := range claims.Items {
		if claim := &claims.Items[i]; claim.Status.ProviderID != "" {
			known = append(known, &v1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: claim.Labels},
				Status:     v1.NodeClaimStatus{ProviderID: claim.Status.ProviderID},
			})
		}
	}
	return known, nil
}

// GetInstanceTypes offers one type, at a price at which no running node is worth replacing.
func (p *provider) GetInstanceTypes(context.Context, *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	in := func(key string, values ...string) *scheduling.Requirement {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
	}
	zone, capacity := in(corev1.LabelTopologyZone, "us-east-1a"), in(v1.CapacityTypeLabelKey, "on-demand")
	offering := &cloudprovider.Offering{
		Requirements: scheduling.NewRequirements(zone, capacity), Price: 1000, Available: true,
	}
	return []*cloudprovider.InstanceType{{
		Name: "c6i.large",
		Requirements: scheduling.NewRequirements(
			zone, capacity,
			in(corev1.LabelInstanceTypeStable, "c6i.large"),
			in(corev1.LabelArchStable, "amd64"),
			in(corev1.LabelOSStable, "linux"),
			in("karpenter.k8s.aws/instance-family", "c6i"),
			in("karpenter.k8s.aws/instance-size", "large"),
		),
		Offerings: cloudprovider.Offerings{offering},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("2"),
			corev1.ResourceMemory: resource.MustParse("4Gi"),
			corev1.ResourcePods:   resource.MustParse("29"),
		},
		Overhead: &cloudprovider.InstanceTypeOverhead{},
	}}, nil
}

func (p *provider) IsDrifted(context.Context, *v1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

func (p *provider) Reboot(_ context.Context, claim *v1.NodeClaim, _ string) error {
	fmt.Println("reboot", claim.Name)
	return nil
}

func (p *provider) RepairPolicies() []cloudprovider.RepairPolicy { return nil }

func (p *provider) Name() string { return "recording" }

func (p *provider) GetSupportedNodeClasses() []status.Object { return []status.Object{&EC2NodeClass{}} }

func main() {
	version := schema.GroupVersion{Group: "karpenter.k8s.aws", Version: "v1"}
	scheme.Scheme.AddKnownTypes(version, &EC2NodeClass{}, &EC2NodeClassList{})
	metav1.AddToGroupVersion(scheme.Scheme, version)
	v1.WellKnownLabels.Insert("karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-size")

	ctx, op := operator.NewOperator()
	recording := &provider{client: op.GetClient(), knowsNone: os.Getenv("PROVIDER_KNOWS_NONE") != ""}
	policies := lo.Must(health.NewRepairPolicyMatcher(ctx, recording))
	cluster := state.NewCluster(op.Clock, op.GetClient(), recording, state.WithRepairPolicyMatcher(policies))
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, recording, recording, cluster,
		op.InstanceTypeStore, op.PredictionStore,
	)...).Start(ctx)
}
